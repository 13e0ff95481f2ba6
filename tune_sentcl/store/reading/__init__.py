"""Reading a study, or several studies as one."""
