"""Plugins: code of the user's own, which a search loads from files or installed packages."""

from tune_sentcl.plugins.declaring import loss as loss
from tune_sentcl.plugins.declaring import method as method
from tune_sentcl.plugins.declaring import trainer as trainer
from tune_sentcl.plugins.extensions import EXTENSIONS as EXTENSIONS
from tune_sentcl.plugins.extensions import source as source
from tune_sentcl.plugins.extensions import task as task
from tune_sentcl.plugins.extensions import watcher as watcher
from tune_sentcl.plugins.loading import activate as activate
from tune_sentcl.plugins.loading import load_plugins as load_plugins
from tune_sentcl.plugins.sources import Plugin as Plugin
