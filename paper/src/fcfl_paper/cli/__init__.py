"""`fcfl reproduce` and `fcfl data eicu`, which the command line finds as entry points."""
