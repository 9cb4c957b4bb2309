"""What people must hand in about a model, written from the files of a run or an audit."""
