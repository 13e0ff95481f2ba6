"""Parts of the toy's example domain."""
