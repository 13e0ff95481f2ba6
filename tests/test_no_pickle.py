"""The package's source holds no call that could run code out of a file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tune_sentcl

PACKAGE = Path(tune_sentcl.__file__).parent
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
# What Ray sends between its own processes goes by value; nothing of that is read from a file.
BY_VALUE = {"register_pickle_by_value", "unregister_pickle_by_value"}
LOADS = {
    *("torch.load", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.unsafe_load_all"),
    *("eval", "exec", "__import__", "runpy.run_path", "pandas.read_pickle", "pd.read_pickle"),
    *("np.fromfile", "numpy.fromfile", "np.lib.format.read_array"),
}


def dotted(node: ast.AST) -> str:
    """A name with its dots, as the source has it; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}".lstrip(".")
    return ""


def is_constant(call: ast.Call, name: str, value: object) -> bool | None:
    """Whether an argument is this very constant; None where it is not given."""
    for argument in call.keywords:
        if argument.arg == name:
            given = argument.value
            return isinstance(given, ast.Constant) and given.value is value
    return None


def faults(source: str) -> Iterator[str]:
    """What in a module's source could read a pickle, or run code that came with a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in named if name != "pickle.UnpicklingError"]  # to catch it
        else:
            names = []
        yield from (name for name in names if UNPICKLERS & set(name.split(".")))
        if isinstance(node, ast.Attribute):
            parts = dotted(node).split(".")
            if UNPICKLERS & set(parts[:-1]) and parts[-1] not in BY_VALUE:
                yield dotted(node)
        if isinstance(node, ast.Call):
            yield from of_call(node)


def of_call(call: ast.Call) -> Iterator[str]:
    name = dotted(call.func)
    if name in LOADS:
        yield name
    last = name.rpartition(".")[2]
    if (
        last == "load"
        and name.split(".")[0] in ("np", "numpy")
        and not is_constant(call, "allow_pickle", False)
    ):
        yield f"{name} without allow_pickle=False"
    if is_constant(call, "trust_remote_code", False) is False:
        yield f"{name} with trust_remote_code"
    if last == "from_pretrained" and is_constant(call, "trust_remote_code", False) is None:
        yield f"{name} leaves trust_remote_code open"
    if name.endswith("Model.from_pretrained") and not is_constant(call, "use_safetensors", True):
        yield f"{name} without use_safetensors=True"
    if is_constant(call, "weights_only", True) is False:
        yield f"{name} with weights_only off"


def test_no_module_reads_a_pickle() -> None:
    paths = sorted(PACKAGE.rglob("*.py"))
    found = {path.name: list(faults(path.read_text(encoding="utf-8"))) for path in paths}
    assert {name: calls for name, calls in found.items() if calls} == {}
