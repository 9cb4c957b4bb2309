"""Simulated stays as tables with the published columns."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from fcfl_paper.eicu.source_tables import Frame

from .simulated_events import Typical, charting, labs, urine
from .simulated_stays import REGIONS

COLUMNS = {
    "patient": (
        "patientunitstayid,patienthealthsystemstayid,gender,age,ethnicity,hospitalid,wardid,"
        "apacheadmissiondx,admissionheight,hospitaladmittime24,hospitaladmitoffset,"
        "hospitaladmitsource,hospitaldischargeyear,hospitaldischargetime24,"
        "hospitaldischargeoffset,hospitaldischargelocation,hospitaldischargestatus,unittype,"
        "unitadmittime24,unitadmitsource,unitvisitnumber,unitstaytype,admissionweight,"
        "dischargeweight,unitdischargetime24,unitdischargeoffset,unitdischargelocation,"
        "unitdischargestatus,uniquepid"
    ),
    "hospital": "hospitalid,numbedscategory,teachingstatus,region",
    "apacheApsVar": (
        "apacheapsvarid,patientunitstayid,intubated,vent,dialysis,eyes,motor,verbal,meds,urine,"
        "wbc,temperature,respiratoryrate,sodium,heartrate,meanbp,ph,hematocrit,creatinine,"
        "albumin,pao2,pco2,bun,glucose,bilirubin,fio2"
    ),
    "apachePredVar": (
        "apachepredvarid,patientunitstayid,sicuday,saps3day1,saps3today,saps3yesterday,gender,"
        "teachtype,region,bedcount,admitsource,graftcount,meds,verbal,motor,eyes,age,"
        "admitdiagnosis,thrombolytics,diedinhospital,aids,hepaticfailure,lymphoma,"
        "metastaticcancer,leukemia,immunosuppression,cirrhosis,electivesurgery,activetx,readmit,"
        "ima,midur,ventday1,oobventday1,oobintubday1,diabetes,managementsystem,var03hspxlos,pao2,"
        "fio2,ejectfx,creatinine,dischargelocation,visitnumber,amilocation,day1meds,day1verbal,"
        "day1motor,day1eyes,day1pao2,day1fio2"
    ),
    "apachePatientResult": (
        "apachepatientresultsid,patientunitstayid,physicianspeciality,"
        "physicianinterventioncategory,acutephysiologyscore,apachescore,apacheversion,"
        "predictedicumortality,actualicumortality,predictediculos,actualiculos,"
        "predictedhospitalmortality,actualhospitalmortality,predictedhospitallos,"
        "actualhospitallos,preopmi,preopcardiaccath,ptcawithin24h,unabridgedunitlos,"
        "unabridgedhosplos,actualventdays,predventdays,unabridgedactualventdays"
    ),
    "carePlanGeneral": (
        "cplgeneralid,patientunitstayid,activeupondischarge,cplitemoffset,cplgroup,cplitemvalue"
    ),
    "nurseCharting": (
        "nursingchartid,patientunitstayid,nursingchartoffset,nursingchartentryoffset,"
        "nursingchartcelltypecat,nursingchartcelltypevallabel,nursingchartcelltypevalname,"
        "nursingchartvalue"
    ),
    "lab": (
        "labid,patientunitstayid,labresultoffset,labtypeid,labname,labresult,labresulttext,"
        "labmeasurenamesystem,labmeasurenameinterface,labresultrevisedoffset"
    ),
    "intakeOutput": (
        "intakeoutputid,patientunitstayid,intakeoutputoffset,intaketotal,outputtotal,"
        "dialysistotal,nettotal,intakeoutputentryoffset,cellpath,celllabel,cellvaluenumeric,"
        "cellvaluetext"
    ),
}
_WORST = {
    "wbc": Typical(11, 1.2, 4, 1), "temperature": Typical(36.8, 0.1, 0.6, 1),
    "sodium": Typical(138, 0.2, 5), "respiratoryrate": Typical(24, 3, 6),
    "heartrate": Typical(100, 9, 14), "meanbp": Typical(72, -6, 14),
    "ph": Typical(7.38, -0.02, 0.06, 2), "hematocrit": Typical(33, -1, 5, 1),
    "bun": Typical(22, 5, 12), "creatinine": Typical(1.2, 0.3, 0.7, 2),
    "albumin": Typical(3.1, -0.2, 0.6, 1), "pao2": Typical(105, -6, 30),
    "pco2": Typical(41, 1, 8), "glucose": Typical(150, 12, 45),
    "bilirubin": Typical(0.9, 0.2, 0.7, 1), "fio2": Typical(45, 6, 12),
    "urine": Typical(1600, -150, 500),
}  # fmt: skip


def make_tables(stays: Frame, rng: np.random.Generator) -> Iterator[tuple[str, Frame]]:
    """Yield (table, some of its rows); columns that are never read are left empty."""
    yield "patient", _patient(stays)
    yield "hospital", _hospital(stays)
    yield "apacheApsVar", _aps(stays, rng)
    yield "apachePredVar", _predictors(stays, rng)
    yield "apachePatientResult", _results(stays)
    yield "carePlanGeneral", _care_plans(stays)
    for part in charting(stays, rng):
        yield "nurseCharting", part
    for part in labs(stays, rng):
        yield "lab", part
    yield "intakeOutput", urine(stays, rng)


def _patient(stays: Frame) -> Frame:
    flaw = stays["flaw"]
    unit = np.where(stays["died_in_unit"], "Expired", "Alive")
    hospital = np.where(stays["died_in_hospital"], "Expired", "Alive")
    age = np.where(stays["age"] > 89, "> 89", stays["age"].astype(int).astype(str))
    return pd.DataFrame(
        {
            "patientunitstayid": stays["stay"],
            "patienthealthsystemstayid": stays["stay"] + 5_000_000,
            "gender": stays["gender"].mask(flaw == "gender"),
            "age": np.where(flaw == "age", "12", age),
            "ethnicity": stays["ethnicity"].mask(flaw == "race"),
            "hospitalid": stays["hospital"],
            "hospitaladmitoffset": stays["admitted"],
            "hospitaldischargeyear": stays["year"],
            "hospitaldischargeoffset": stays["left"].astype("Int64").mask(flaw == "label"),
            "hospitaldischargestatus": pd.Series(hospital).mask(flaw == "status"),
            "unittype": np.where(flaw == "unit", "Step-Down Unit", "Med-Surg ICU"),
            "unitvisitnumber": 1,
            "unitdischargeoffset": (stays["end"] + 15).astype(int),
            "unitdischargestatus": pd.Series(unit).mask(flaw == "status"),
            "uniquepid": stays["patient"],
        }
    )


def _hospital(stays: Frame) -> Frame:
    ids = np.unique(stays["hospital"])
    regions = [REGIONS[number % len(REGIONS)] for number in range(ids.size)]
    return pd.DataFrame({"hospitalid": ids, "region": regions})


def _aps(stays: Frame, rng: np.random.Generator) -> Frame:
    n, severity = len(stays), stays["severity"].to_numpy()
    columns = {
        name: np.where(rng.random(n) < 0.15, -1.0, typical.draw(severity, rng))
        for name, typical in _WORST.items()
    }
    ventilated = (rng.random(n) < 1 / (1 + np.exp(1.5 - severity))).astype(int)
    return pd.DataFrame(
        {"patientunitstayid": stays["stay"], "intubated": ventilated, "vent": ventilated,
         "dialysis": 0, "eyes": np.clip(4 - (severity > 1.5), 1, 4), "motor": 6, "verbal": 5,
         "meds": 0, **columns}
    )  # fmt: skip


def _predictors(stays: Frame, rng: np.random.Generator) -> Frame:
    n = len(stays)
    rates = {"aids": 0.002, "hepaticfailure": 0.015, "lymphoma": 0.005, "metastaticcancer": 0.02,
             "leukemia": 0.01, "immunosuppression": 0.03, "cirrhosis": 0.02, "diabetes": 0.22,
             "thrombolytics": 0.02, "activetx": 0.5, "readmit": 0.04, "ima": 0.02,
             "midur": 0.01}  # fmt: skip
    columns = {name: (rng.random(n) < rate).astype(int) for name, rate in rates.items()}
    elective = pd.Series((rng.random(n) < 0.15).astype("int64"), dtype="Int64")
    surgery = elective.mask(rng.random(n) < 0.5)
    return pd.DataFrame({"patientunitstayid": stays["stay"], "electivesurgery": surgery, **columns})


def _results(stays: Frame) -> Frame:
    score = np.clip((50 + 18 * stays["severity"]).round(), 5, 160).astype(int)
    predicted = (1 / (1 + np.exp(2.6 - 0.9 * stays["severity"]))).round(4)
    version = pd.DataFrame(
        {
            "patientunitstayid": stays["stay"],
            "acutephysiologyscore": np.maximum(score - 12, 0),
            "apachescore": score,
            "predictedhospitalmortality": predicted.mask(stays["flaw"] == "apache", -1),
        }
    )
    return pd.concat([version.assign(apacheversion=name) for name in ("IV", "IVa")])


def _care_plans(stays: Frame) -> Frame:
    full = pd.DataFrame(
        {"patientunitstayid": stays["stay"], "cplitemoffset": stays["start"] + 20,
         "cplitemvalue": "Full therapy"}
    )  # fmt: skip
    limited = stays[stays["limit"].notna()]
    limits = pd.DataFrame(
        {"patientunitstayid": limited["stay"], "cplitemoffset": limited["limit"].astype(int),
         "cplitemvalue": np.resize(["Do not resuscitate", "Comfort measures only"], len(limited))}
    )  # fmt: skip
    return pd.concat([full, limits]).assign(cplgroup="Care Limitation")
