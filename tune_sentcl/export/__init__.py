"""Export of the winner's model: the choice of the trial, and the folder of its model."""
