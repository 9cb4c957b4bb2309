"""The applied model card of the Coalition for Health AI (CHAI), version 0.2, as XML."""

import json
from collections.abc import Iterable, Iterator
from datetime import date
from xml.etree import ElementTree

from fcfl.cards.facts import Facts, stated
from fcfl.cards.rate_tables import RateTables
from fcfl.cards.statements import claim_json, client_rows, how_tested, versions_of
from fcfl.report.claims import claims_of
from fcfl.report.words import (
    plain,
    served_sentence,
    standing,
    trained_sentence,
    unknown_worst,
)
from fcfl.results import Result

NAMESPACE = "https://mc.chai.org/v0.2/schema.xsd"
Results = Iterable[tuple[str, object]]


def chai_card(
    result: Result, tables: RateTables | None, facts: Facts, least: int, today: date
) -> str:
    """The card; what neither the result nor the facts say is said to be not stated."""
    ElementTree.register_namespace("", NAMESPACE)
    card = _element(None, "AppliedModelCard")

    def known(key: str) -> str:
        return stated(facts, key)

    _fill(card, "BasicInfo", ModelName=known("model_name"), ModelDeveloper=known("model_developer"),
          DeveloperContact=known("developer_contact"))  # fmt: skip
    release = _fill(card, "ReleaseInfo", ReleaseStage=known("release_stage"),
                    ReleaseDate=known("release_date"), ReleaseVersion=known("release_version"),
                    GlobalAvailability=known("global_availability"))  # fmt: skip
    if "regulatory_approval" in facts:
        _element(release, "RegulatoryApproval", facts["regulatory_approval"])
    summary = _fill(card, "ModelSummary", Summary=known("summary"))
    words = _element(summary, "Keywords")
    for word in filter(None, (part.strip() for part in facts.get("keywords", "").split(","))):
        _element(words, "Keyword", word)
    _fill(card, "UsesAndDirections", IntendedUseAndWorkflow=known("intended_use_and_workflow"),
          PrimaryIntendedUsers=known("primary_intended_users"), HowToUse=known("how_to_use"),
          TargetedPatientPopulation=known("targeted_patient_population"),
          CautionedOutOfScopeSettings=known("cautioned_out_of_scope_settings"))  # fmt: skip
    _fill(card, "Warnings", KnownRisksAndLimitations=known("known_risks_and_limitations"),
          KnownBiasesOrEthicalConsiderations=standing(result),
          ClinicalRiskLevel=known("clinical_risk_level"))  # fmt: skip
    _trust(card, result, facts)
    _metrics(card, result, tables, facts, least)
    _fill(card, "Resources", PeerReviewedPublications=known("peer_reviewed_publications"),
          PatientConsentOrDisclosure=known("patient_consent_or_disclosure"))  # fmt: skip
    written = f"{known('bibliography')} Card written on {today.isoformat()} by fcfl."
    _element(card, "Bibliography", written)
    ElementTree.indent(card)
    text: str = ElementTree.tostring(card, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _trust(card: ElementTree.Element, result: Result, facts: Facts) -> None:
    trust = _element(card, "TrustIngredients")
    settings = result.settings
    label = settings.get("label")
    outcome = "the positive label" if label is None else f"the positive value of {label!r}"
    is_audit = result.method == "audit"
    rows = sum(client.rows.train for client in result.clients.values())
    _fill(
        trust,
        "AISystemFacts",
        OutcomesAndOutputs="Predictions of a model that is not known here."
        if is_audit
        else f"Probability of {outcome}, and a decision from {result.threshold:g} on.",
        ModelType=stated(facts, "summary")
        if is_audit
        else f"Binary classifier trained by fcfl, method {result.method}.",
        InputDataSource=stated(facts, "input_data_source"),
        OutputAndInputDataTypes="Table rows in; a decision for each out."
        if is_audit
        else "Table rows in; a probability and a decision for each out.",
        DevelopmentDataCharacterization="Not known: predictions were audited."
        if is_audit
        else f"{rows:,} training rows of {len(result.clients)} clients, who keep their rows.",
        BiasMitigationApproaches="None is known."
        if is_audit
        else f"Budgets on the disparity of group rates at each client. {trained_sentence(result)}",
        OngoingMaintenance=stated(facts, "ongoing_maintenance"),
        Transparency=f"Computed by {versions_of(result)}.",
    )
    more = {"FundingSource": stated(facts, "funding_source")}
    if "third_party_information" in facts:
        more["ThirdPartyInformation"] = facts["third_party_information"]
    more["StakeholdersConsulted"] = stated(facts, "stakeholders_consulted")
    _fill(trust, "TransparencyInformation", **more)


def _metrics(
    card: ElementTree.Element,
    result: Result,
    tables: RateTables | None,
    facts: Facts,
    least: int,
) -> None:
    metrics = _element(card, "KeyMetrics")
    tested = how_tested(result)
    served = served_sentence(result) or unknown_worst(result)
    for name, goal, found, reading in (
        (
            "UsefulnessUsabilityEfficacy",
            "Accuracy of decisions.",
            _accuracies(result, least),
            "Share of rows decided as labelled; balanced accuracy weighs both labels alike.",
        ),
        (
            "FairnessEquity",
            stated(facts, "fairness_goal"),
            _disparities(result, tables),
            standing(result),
        ),
        (
            "SafetyReliability",
            "No client is served much worse than the others.",
            _reliability(result),
            served,
        ),
    ):
        metric = _element(metrics, name)
        _element(metric, "MetricGoal", goal)
        results = _element(metric, "Results")
        for label, value in found:
            _fill(results, "MetricResult", Label=label, ValueJson=json.dumps(value))
        _element(metric, "Interpretation", reading)
        _element(metric, "TestType", "Retrospective, on rows of the clients.")
        _element(metric, "TestingDataDescription", tested)
        _element(
            metric,
            "ValidationProcessAndJustification",
            "Counts of decisions with intervals from the audit of fcfl; method and settings are in "
            "result.json.",
        )


def _accuracies(result: Result, least: int) -> Iterator[tuple[str, object]]:
    rows, part = client_rows(result, least), result.judged_part
    for name, client in (("", result.overall), *result.clients.items()):
        found = client.part(part)
        yield (
            f"Accuracy, {name or 'all rows'}",
            {
                "rows": rows[name],
                "accuracy": found.accuracy,
                "interval": found.accuracy_interval,
                "balanced_accuracy": found.balanced_accuracy,
            },
        )


def _disparities(result: Result, tables: RateTables | None) -> Iterator[tuple[str, object]]:
    for claim in claims_of(result):
        yield f"{claim.entry.title}, {claim.client}", claim_json(claim)
    for table in () if tables is None else tables.tables:
        for line in (*table.lines, *table.small):
            counts = {"rows": line.rows, "selected": line.selected, "rate": line.rate}
            yield f"Selection rate, {' and '.join(table.attributes)}: {line.name}", counts
    if not result.clients:
        yield "Clients", 0


def _reliability(result: Result) -> Iterator[tuple[str, object]]:
    yield "How it ended", {"status": result.status, "message": result.message}
    worst = result.worst_client
    yield "Worst served client", {"client": worst.name, "accuracy": worst.test_accuracy}


def _element(
    parent: ElementTree.Element | None, name: str, text: str | None = None
) -> ElementTree.Element:
    tag = f"{{{NAMESPACE}}}{name}"
    made = ElementTree.Element(tag) if parent is None else ElementTree.SubElement(parent, tag)
    if text is not None:
        made.text = plain(text)  # a control character would not be XML
    return made


def _fill(parent: ElementTree.Element, name: str, **children: str) -> ElementTree.Element:
    made = _element(parent, name)
    for child, text in children.items():
        _element(made, child, text)
    return made
