"""Result files for people. Reads files only: anything shown can be shown again without training."""
