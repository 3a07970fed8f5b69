"""The tools of the other languages, RocketMQ's jars and the clients' drivers, prepared once.

`classpath()` copies the jars named in `java/pom.xml` and compiles the peer into `.cache/`, keyed
by content: a changed source compiles again, a changed pom resolves again. `go_driver()` and
`node_modules()` do the same for `go/` and `node/`. A file lock lets parallel test workers share the
work. `python -m interop.toolchain` prepares everything ahead of a run.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

JAVA_DIR = Path(__file__).parent / "java"
POM = JAVA_DIR / "pom.xml"
RESOURCES = JAVA_DIR / "src" / "main" / "resources"
JAVA_CLIENT_DIR = Path(__file__).parent / "java-client"
JAVA_CLIENT_POM = JAVA_CLIENT_DIR / "pom.xml"
# The newest of both lines: programs on 4.9 are still many.
JAVA_CLIENT_VERSIONS = ("4.9.8", "5.5.0")
PROXY_POM = JAVA_DIR / "proxy-pom.xml"
GO_DIR = Path(__file__).parent / "go"
NODE_DIR = Path(__file__).parent / "node"
CACHE_DIR = Path(__file__).parent / ".cache"

APT_PACKAGES = ("default-jdk-headless", "maven")
APT_TIMEOUT_S = 900
RESOLVE_TIMEOUT_S = 900
COMPILE_TIMEOUT_S = 120
# RocketMQ 5.5 runs on Java 8, but the flags that open JDK internals to it need 11.
JAVA_RELEASE = "11"


class ToolchainError(RuntimeError):
    """A tool is missing or failed; the message says what to do."""


@dataclass(frozen=True)
class Tools:
    """Absolute paths of the programs in use."""

    java: str
    javac: str
    mvn: str


@functools.cache
def tools() -> Tools:
    """Find the Java tools, installing them where this process may do so."""
    if _missing() and _may_install():
        with _lock():
            _install()
    missing = _missing()
    if missing:
        raise ToolchainError(
            f"{', '.join(missing)} not found on PATH. Install a JDK (11 or newer) and Maven, on "
            f"Debian or Ubuntu: apt-get install {' '.join(APT_PACKAGES)}"
        )
    return Tools(_which("java"), _which("javac"), _which("mvn"))


@functools.cache
def classpath() -> str:
    """Return the class path with the peer, our log settings and RocketMQ; build what is missing."""
    sources = sorted(JAVA_DIR.rglob("*.java"))
    found = tools()
    with _lock():
        found_jars = _built("lib", [POM], functools.partial(_copy_jars, found))
        compile_to = functools.partial(_compile, found, sources, found_jars)
        classes = _built("classes", [POM, *sources], compile_to)
    # Ours first: RocketMQ takes the first logging configuration of that name.
    return os.pathsep.join([str(classes), str(RESOURCES), f"{found_jars}/*"])


@functools.cache
def java_client_classpath(version: str) -> str:
    """Return the class path of the scenario client with the Java client of this version."""
    # One form of a message for all: the peer's own source, compiled against this version too.
    shared = JAVA_DIR / "src" / "main" / "java" / "cometmq" / "interop" / "MessageJson.java"
    sources = [*sorted(JAVA_CLIENT_DIR.rglob("*.java")), shared]
    found = tools()
    with _lock():
        resolve = functools.partial(_copy_jars, found, pom=JAVA_CLIENT_POM, version=version)
        found_jars = _built(f"java-client-{version}", [JAVA_CLIENT_POM], resolve)
        compile_to = functools.partial(_compile, found, sources, found_jars)
        classes = _built(f"java-client-{version}-classes", [JAVA_CLIENT_POM, *sources], compile_to)
    return os.pathsep.join([str(classes), str(RESOURCES), f"{found_jars}/*"])


@functools.cache
def proxy_classpath() -> str:
    """Return the class path of RocketMQ's gRPC proxy, started by the peer's `Launch`."""
    return os.pathsep.join([launcher(), f"{jars('proxy', PROXY_POM)}/*"])


def jars(name: str, pom: Path) -> Path:
    """Return a directory with the jars that a pom names, and all that they need."""
    found = tools()
    with _lock():
        return _built(name, [pom], functools.partial(_copy_jars, found, pom=pom))


def launcher() -> str:
    """Return the class path of `cometmq.interop.Launch`, which ends with its standard input."""
    return os.pathsep.join(classpath().split(os.pathsep)[:2])


def python_packages(*requirements: str) -> Path:
    """Return a directory for PYTHONPATH with these packages, apart from those we run with."""
    name = "python-" + "-".join(requirements).replace("=", "")
    with _lock():
        return _built(name, [], functools.partial(_install_packages, requirements))


def _install_packages(requirements: tuple[str, ...], target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--target", str(target), *requirements], RESOLVE_TIMEOUT_S)


@functools.cache
def go_driver() -> Path:
    """Return the program that drives the Go client; build it if it is missing."""
    go = _program("go", "golang-go")
    inputs = [GO_DIR / "go.mod", GO_DIR / "go.sum", *sorted(GO_DIR.glob("*.go"))]
    with _lock():
        return _built("go", inputs, functools.partial(_build_go, go)) / "driver"


@functools.cache
def node() -> str:
    """Return the path of Node.js."""
    return _program("node", "nodejs")


@functools.cache
def node_modules() -> Path:
    """Return the directory with the Node.js client and what it needs; fetch it if missing."""
    npm = _program("npm", "npm")
    inputs = [NODE_DIR / "package.json", NODE_DIR / "package-lock.json"]
    with _lock():
        target = _built("node", inputs, functools.partial(_install_modules, npm, inputs))
    return target / "node_modules"


def _program(name: str, package: str) -> str:
    """Find a program, installing its package where this process may do so."""
    if not _which(name) and _may_install():
        with _lock():
            if not _which(name):
                _apt_install(package)
    if not _which(name):
        raise ToolchainError(
            f"{name} not found on PATH. On Debian or Ubuntu: apt-get install {package}"
        )
    return _which(name)


def _build_go(go: str, target: Path) -> None:
    options = ["-trimpath", "-buildvcs=false", "-o", str(target / "driver")]
    command = [go, "build", *options, "."]
    _run(command, RESOLVE_TIMEOUT_S, cwd=GO_DIR)


def _install_modules(npm: str, manifests: list[Path], target: Path) -> None:
    for manifest in manifests:
        shutil.copy(manifest, target)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    _run(command, RESOLVE_TIMEOUT_S, cwd=target)


def _which(name: str) -> str:
    return shutil.which(name) or ""


def _missing() -> list[str]:
    return [name for name in ("java", "javac", "mvn") if not _which(name)]


def _may_install() -> bool:
    return os.geteuid() == 0 and bool(_which("apt-get"))


def _install() -> None:
    if not _missing():
        return  # Another worker did it while we waited for the lock.
    _apt_install(*APT_PACKAGES)


def _apt_install(*packages: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update"], APT_TIMEOUT_S, env)
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    _run(install, APT_TIMEOUT_S, env)


def _copy_jars(found: Tools, target: Path, pom: Path = POM, version: str = "") -> None:
    options = [f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
    if version:
        options.append(f"-Drocketmq.version={version}")
    goal = [found.mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    _run([*goal, *options], RESOLVE_TIMEOUT_S)


def _compile(found: Tools, sources: list[Path], jars: Path, target: Path) -> None:
    options = ["--release", JAVA_RELEASE, "-encoding", "UTF-8", "-cp", f"{jars}/*"]
    files = [str(source) for source in sources]
    _run([found.javac, *options, "-d", str(target), *files], COMPILE_TIMEOUT_S)


def _built(name: str, inputs: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Return the directory built from these inputs; it exists only if its build succeeded."""
    final = CACHE_DIR / f"{name}-{_digest(inputs)}"
    if not final.exists():
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=CACHE_DIR) as scratch:
            made = Path(scratch) / name
            made.mkdir()
            build(made)
            made.rename(final)
    return final


def _digest(inputs: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _lock() -> Iterator[None]:
    CACHE_DIR.mkdir(exist_ok=True)
    with (CACHE_DIR / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(
    command: list[str],
    timeout_s: float,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    print("interop:", " ".join(command[:6]), "...", file=sys.stderr, flush=True)
    try:
        # Progress belongs on stderr; stdout may be read by a program.
        subprocess.run(command, check=True, stdout=sys.stderr, timeout=timeout_s, env=env, cwd=cwd)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{Path(command[0]).name} failed: {error}") from error


def main() -> int:
    """Prepare and say what was found."""
    try:
        found = tools()
        for name in ("java", "javac", "mvn"):
            print(f"{name}: {getattr(found, name)}")
        print(f"classpath: {classpath()}")
        for version in JAVA_CLIENT_VERSIONS:
            print(f"java client {version}: {java_client_classpath(version)}")
        print(f"go driver: {go_driver()}")
        print(f"node: {node()}")
        print(f"node modules: {node_modules()}")
    except ToolchainError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
