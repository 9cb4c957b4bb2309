"""Hand-made eICU tables: one sound stay, changed row by row to ask one question at a time."""

import gzip

from fcfl_paper.eicu.simulate import COLUMNS

DAY = 1440
SOUND = {
    "patientunitstayid": 1,
    "patienthealthsystemstayid": 10,
    "uniquepid": "p1",
    "hospitalid": 7,
    "unittype": "MICU",
    "age": "60",
    "gender": "Female",
    "ethnicity": "Caucasian",
    "hospitaladmitoffset": -100,
    "hospitaldischargeoffset": 5 * DAY,
    "unitdischargeoffset": 3 * DAY,
    "hospitaldischargeyear": 2014,
    "hospitaldischargestatus": "Alive",
    "unitdischargestatus": "Alive",
}
TITLES = {
    "hr": ("Heart Rate", "Heart Rate"),
    "rr": ("Respiratory Rate", "Respiratory Rate"),
    "spo2": ("O2 Saturation", "O2 Saturation"),
    "temp": ("Temperature", "Temperature (C)"),
    "temp_f": ("Temperature", "Temperature (F)"),
    "cuff": ("Non-Invasive BP", "Non-Invasive BP Systolic"),
    "line": ("Invasive BP", "Invasive BP Systolic"),
    "gcs": ("Glasgow coma score", "GCS Total"),
}
URINE = "flowsheet|Flowsheet Cell Labels|I&O|Output (ml)|Urine"


def stay(number=1, **changes):
    """A sound stay of its own patient, changed where asked."""
    own = {
        "patientunitstayid": number,
        "patienthealthsystemstayid": 10 * number,
        "uniquepid": f"p{number}",
    }
    return {**SOUND, **own, **changes}


def charted(what, minute, value, number=1):
    label, name = TITLES[what]
    return {
        "patientunitstayid": number,
        "nursingchartoffset": minute,
        "nursingchartcelltypevallabel": label,
        "nursingchartcelltypevalname": name,
        "nursingchartvalue": value,
    }


def lab(name, minute, value, number=1):
    return {
        "patientunitstayid": number,
        "labresultoffset": minute,
        "labname": name,
        "labresult": value,
    }


def plan(value, minute, number=1, group="Care Limitation"):
    return {
        "patientunitstayid": number,
        "cplitemoffset": minute,
        "cplgroup": group,
        "cplitemvalue": value,
    }


def urine(minute, value, number=1, path=URINE):
    return {
        "patientunitstayid": number,
        "intakeoutputoffset": minute,
        "cellpath": path,
        "cellvaluenumeric": value,
    }


def write_tables(folder, stays, *, packed=False, **rows):
    """Write every table; a stay has heart rates at minute 0 and two days on, unless they are given.

    Each stay also has an APACHE IVa prediction of 0.1, unless ``apachePatientResult`` is given.
    """
    numbers = [each["patientunitstayid"] for each in stays]
    beats = [charted("hr", at, 80, number) for number in numbers for at in (0, 2 * DAY)]
    results = [
        {"patientunitstayid": n, "apacheversion": "IVa", "predictedhospitalmortality": 0.1}
        for n in numbers
    ]
    given = {
        "patient": stays,
        "nurseCharting": beats,
        "apachePatientResult": results,
        "hospital": [{"hospitalid": 7, "region": "South"}],
        **rows,
    }
    for table in COLUMNS:
        write_table(folder, table, given.get(table, []), packed=packed)
    return folder


def write_table(folder, table, rows, *, packed=False, columns=None):
    """Write one table with the published header, or with another one."""
    columns = columns or COLUMNS[table]
    lines = [",".join(columns)]
    lines += [",".join(_cell(row.get(column, "")) for column in columns) for row in rows]
    text = "\n".join(lines) + "\n"
    path = folder / f"{table}.csv{'.gz' if packed else ''}"
    opener = gzip.open if packed else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


def _cell(value):
    return f'"{value}"' if isinstance(value, str) and value else str(value)
