"""The winner's model: which trial it is, an average of several, and the folder that holds it."""
