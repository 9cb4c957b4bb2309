"""What a card needs and no result knows: a small TOML file that a person fills in."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from fcfl._checks import did_you_mean
from fcfl.errors import DataError

NOT_STATED = "Not stated."
Facts = Mapping[str, str]

FIELDS: dict[str, dict[str, str]] = {
    "ll144": {
        "tool_name": "Name of the automated employment decision tool",
        "distribution_date": "Date on which the tool was first distributed or used",
        "audit_date": "Date of the bias audit",
        "auditor": "Independent auditor",
        "data_source": "Source of the data, and how it was collected",
        "data_kind": "Historical data or test data, and why",
        "small_categories": "Why categories under 2 % of the data are left out of impact ratios",
    },
    "chai": {
        "model_name": "Name of the model",
        "model_developer": "Who developed it",
        "developer_contact": "How to reach them",
        "release_stage": "For example: research, pilot, production",
        "release_date": "Date of release",
        "release_version": "Version of the model",
        "global_availability": "Where it is available",
        "regulatory_approval": "Regulatory approval, if any",
        "summary": "What the model does, in a few sentences",
        "keywords": "Keywords, separated by commas",
        "intended_use_and_workflow": "Intended use, and where in the clinical workflow",
        "primary_intended_users": "Who uses it",
        "how_to_use": "How to use it",
        "targeted_patient_population": "For which patients",
        "cautioned_out_of_scope_settings": "Where it must not be used",
        "known_risks_and_limitations": "Known risks and limitations",
        "clinical_risk_level": "Clinical risk level",
        "input_data_source": "Where its inputs come from",
        "ongoing_maintenance": "How it is monitored and updated",
        "funding_source": "Who paid for it",
        "third_party_information": "Third parties",
        "stakeholders_consulted": "Who was consulted",
        "fairness_goal": "Why these groups, these rates and these budgets",
        "peer_reviewed_publications": "Publications",
        "patient_consent_or_disclosure": "Whether patients consent to its use or are told of it",
        "bibliography": "Bibliography",
    },
    "annex-iv": {
        "system_name": "Name and version of the AI system",
        "provider": "Provider",
        "testing_dates": "Dates of the tests",
        "test_data": "Where the test data come from, and their main characteristics",
        "responsible_persons": "Responsible persons, separated by commas; each gets a line to sign",
    },
    "skops": {
        "model_name": "Name of the model",
        "authors": "Authors",
        "contact": "Contact",
        "license": "Licence",
        "intended_uses": "Intended uses and limits",
    },
}  # fmt: skip


def read_facts(kind: str, path: Path | None) -> Facts:
    """What the file states; a key that the card does not have is an error."""
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"There is no file {str(path)!r}. Write one with `--template`.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{str(path)!r} is not TOML: {error}.") from None
    for key, value in content.items():
        if key not in FIELDS[kind]:
            advice = did_you_mean(key, FIELDS[kind])
            raise DataError(f"{str(path)!r} has the unknown key {key!r}. {advice}")
        if not isinstance(value, str):
            raise DataError(f"`{key}` in {str(path)!r} must be text in quotes, got {value!r}.")
    return {key: value.strip() for key, value in content.items() if value.strip()}


def facts_template(kind: str) -> str:
    """The file to fill in, with a line on each field."""
    head = "# Facts for the card. What is left empty is printed as not stated.\n"
    return head + "".join(f'\n# {what}\n{key} = ""\n' for key, what in FIELDS[kind].items())


def stated(facts: Facts, key: str) -> str:
    """A fact, or that it is not stated."""
    return facts.get(key, NOT_STATED)
