"""The page's words, for readers who train no models."""

GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "Selected",
        "The model decides for the positive label, whatever that is here: a loan, an interview, a "
        "warning of death. Whether that is good for the person is not known to this page.",
    ),
    ("Client", "A holder of data that takes part: a hospital, a branch, a school."),
    (
        "Group rate",
        "Of 100 people of a group, how many are selected. For equal opportunity only people with a "
        "positive label are counted, for equalized odds people with each label apart.",
    ),
    (
        "Difference, ratio",
        "The highest group rate minus the lowest; or the lowest divided by the highest, of which "
        "the four-fifths rule asks at least 0.8.",
    ),
    ("Budget", "How large a difference may be, or how small a ratio: somebody has agreed on it."),
    (
        "Interval",
        "Where the value may well lie for people like these, given how few or many there are. Few "
        "people, wide interval.",
    ),
    (
        "Met, exceeded, undetermined",
        "Met: the whole interval is within the budget. Exceeded: the whole interval is beyond it. "
        "Undetermined: the interval reaches over both sides, so these people are too few to tell.",
    ),
    ("Not compared", "Fewer than two groups have people here: there is nothing to compare."),
    (
        "Training rows, held-out rows",
        "The model was made from the former. The latter were kept aside, and say how it does for "
        "people that it has not seen.",
    ),
    (
        "Expected on new rows, chance kept",
        "What the difference will be for new people of the same kind, and how likely it is then "
        "within the budget.",
    ),
    (
        "Accuracy, balanced accuracy",
        "The share of people decided as labelled; the same with both labels weighing alike.",
    ),
    (
        "Score, ROC, calibration",
        "The score is the model's probability of the positive label. The area under the ROC curve "
        "is the chance that of two people, one with each label, the one with the positive label "
        "has the higher score. Scores are calibrated where they come true as often as they say.",
    ),
    (
        "Training loss",
        "What training lowers: how badly the model's probabilities fit the labels, on average over "
        "a client's training rows, without the L2 term that keeps weights small.",
    ),
    (
        "Exchange",
        "One request that all clients answer. It takes as long as the slowest client, whatever is "
        "asked, so that their number is what a run over a network costs.",
    ),
    (
        "Price of a budget",
        "How much the training loss would fall if the budget were a little larger.",
    ),
)
