"""Reports on one or several studies: HTML, LaTeX, Markdown, pictures and a frame."""
