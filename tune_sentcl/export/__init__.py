"""The winner's model: which trial it is, and the folder that holds it."""
