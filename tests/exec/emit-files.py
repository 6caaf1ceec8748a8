# Reads files that emit has written as the projects they are for would: each parses, and every name in it is one of
# the version it says it is for, by planner/data/emit-names.txt. Usage: emit-files.py NAMES KIND=FILE...
import ast
import sys

try:
    import yaml
except ImportError:
    yaml = None

PROJECTS = {"fsdp1": "torch", "fsdp2": "torch"}
OF_PYTHON = {"partial"}


def read_names(path, project):
    """The names that a project knows: {("call", "fully_shard"): {"mesh", ...}, ...}."""
    names, current, found = {}, None, False
    for line in open(path):
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "project":
            found = words[1] == project + ":"
        elif found and not line.startswith(" "):
            current = names.setdefault((words[0], words[1]), set())
        elif found:
            current.update(words)
    return names


def complain(text):
    complain.n += 1
    print(f"{complain.file}: {text}")


complain.n = 0
complain.file = ""


def check_call(names, call):
    owner = ast.unparse(call.func)
    given = {k.arg for k in call.keywords if k.arg}
    if not given or owner in OF_PYTHON:
        return
    if ("call", owner) not in names:
        complain(f"{owner}(...) is not known")
    for name in given - names.get(("call", owner), given):
        complain(f"{owner} has no {name}")


def check_target(names, target):
    if not isinstance(target, ast.Attribute):
        return
    owner = ast.unparse(target.value)
    if target.attr not in names.get(("section", owner), ()) and not owner.startswith("torch."):
        complain(f"{owner} has no {target.attr}")


def check_python(names, text):
    tree = ast.parse(text)
    roots = {owner.split(".")[0] for kind, owner in names if kind == "module"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in roots:
            for alias in node.names:
                if alias.name not in names.get(("module", node.module), ()):
                    complain(f"{node.module} has no {alias.name}")
        elif isinstance(node, ast.Call):
            check_call(names, node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                check_target(names, target)
    compile(tree, complain.file, "exec")


def check_yaml(names, text):
    path = []  # of (column, key)
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        body = line.lstrip(" -")
        column, key = len(line) - len(body), body.split(":")[0]
        while path and path[-1][0] >= column:
            path.pop()
        section = ".".join(k for _, k in path) or "."
        if key not in names.get(("section", section), ()):
            complain(f"{section} has no {key}")
        path.append((column, key))
    if yaml and not isinstance(yaml.safe_load(text), dict):
        complain("is no map")


def main():
    for argument in sys.argv[2:]:
        kind, complain.file = argument.split("=", 1)
        names = read_names(sys.argv[1], PROJECTS.get(kind, kind))
        check = check_yaml if kind in ("accelerate", "nanotron") else check_python
        check(names, open(complain.file).read())
    sys.exit(complain.n > 0)


main()
