"""What each part needs in order to be imported, tried in a fresh interpreter."""

import pkgutil
import subprocess
import sys
import textwrap

import fcfl

OPTIONAL = {  # the extras' own modules
    "fcfl.models.torch_",
    "fcfl.engines.flower",
    "fcfl.engines.nvflare",
    "fcfl.torch",
}
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fcfl.__path__, "fcfl.")
    if not any(module.name.startswith(optional) for optional in OPTIONAL)
)
SERVER = [name for name in MODULES if name.startswith(("fcfl.problem", "fcfl.methods"))]


def import_without(blocked, modules, *, bare=False):
    """Import ``modules`` in an interpreter where ``blocked`` cannot be.

    With ``bare`` the package's own ``__init__`` is not run, so that a module is judged by what it
    imports itself.
    """
    script = """
        import importlib, sys, types
        blocked, modules, bare, folder = eval(sys.argv[1])
        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if any(name == b or name.startswith(b + ".") for b in blocked):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Blocked())
        if bare:
            package = types.ModuleType("fcfl")
            package.__path__ = [folder]
            sys.modules["fcfl"] = package
        for name in modules:
            importlib.import_module(name)
        print(len(modules))
    """
    arguments = repr((list(blocked), list(modules), bare, fcfl.__path__[0]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(modules))]


def test_everything_but_the_extras_works_without_them():
    assert "fcfl.methods.two_stage" in MODULES and "fcfl.federation.loop" in MODULES
    import_without(["torch", "flwr", "nvflare", "safetensors", "onnx", "skops"], ["fcfl", *MODULES])


def test_the_server_needs_neither_tables_nor_a_client():
    assert len(SERVER) >= 7
    blocked = ["pandas", "pyarrow", "torch", "flwr", "sklearn", "fcfl.data", "fcfl.client"]
    import_without(blocked, SERVER, bare=True)


def test_reading_a_checkpoint_needs_no_tables():
    modules = ["fcfl.federation.loop", "fcfl.federation.checkpoint"]
    import_without(["pandas", "pyarrow", "torch", "flwr", "fcfl.data"], modules, bare=True)


def test_the_clients_sums_need_no_server():
    modules = ["fcfl.models.model", "fcfl.models.linear_rows", "fcfl.models.linear"]
    import_without(
        ["torch", "flwr", "fcfl.problem", "fcfl.methods", "fcfl.federation"], modules, bare=True
    )


def test_importing_the_package_imports_nothing_heavy():
    """Neither the extras nor tables, statistics or the estimator's library."""
    script = "import sys, fcfl; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"torch", "flwr", "pandas", "matplotlib", "statsmodels", "sklearn", "pyarrow", "rich"}
    assert not heavy & set(done.stdout.split())


def test_the_estimator_is_there_when_asked_for():
    script = "import fcfl, sys; fcfl.FCFLClassifier(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_public_names_are_the_listed_ones():
    assert all(hasattr(fcfl, name) for name in fcfl.__all__)
    assert fcfl.__all__ == dir(fcfl)
