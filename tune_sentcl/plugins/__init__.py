"""Code of the user's own: what a search loads from the files that the user names."""

from tune_sentcl.plugins.declaring import loss
from tune_sentcl.plugins.extensions import EXTENSIONS, source, task, watcher
from tune_sentcl.plugins.loading import activate, load_plugins
from tune_sentcl.plugins.sources import Plugin

__all__ = ["EXTENSIONS", "Plugin", "activate", "load_plugins", "loss", "source", "task", "watcher"]
