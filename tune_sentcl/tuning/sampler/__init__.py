"""What Optuna samplers see and draw: trials of this study and of others, spaces, the journal."""
