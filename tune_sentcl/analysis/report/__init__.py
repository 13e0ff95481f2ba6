"""A study, or several, as a report: one page, tables to paste, pictures, a frame."""
