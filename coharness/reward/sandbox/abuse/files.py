"""Attempts 5 to 10, 14, 26, 27, 29 and 30: files, other processes' files, shared memory, the network, artefacts."""

from coharness.reward.sandbox.abuse.attempt import Attempt, Goal

_FILL_TMP = """
import os
def attack(host):
    path, written = f"/tmp/coharness-fill-{host['token']}", 0
    try:
        with open(path, "wb") as file:
            for _ in range(64):
                written += file.write(b"x" * 2**20)
                file.flush()
    except OSError:
        pass
    try:
        os.unlink(path)
    except OSError:
        pass
    return f"{written >> 20} MiB in /tmp" if written >= 2**25 else ""
"""
_FILL_SHM = _FILL_TMP.replace("/tmp", "/dev/shm")
_MEMFDS = """
import os
def attack(host):
    written = 0
    try:
        for _ in range(8):
            descriptor = os.memfd_create("x")
            for _ in range(8):
                written += os.write(descriptor, b"x" * 2**20)
    except OSError:
        pass
    return f"{written >> 20} MiB in memory files" if written >= 2**25 else ""
"""
_LEAVE_SHARED = """
import ctypes
def attack(host):
    libc = ctypes.CDLL(None, use_errno=True)
    return "made shared memory" if libc.shmget(host["shm_key"], 2**20, 0o1666) >= 0 else ""
"""
_LEAVE_FILE = """
import os
def attack(host):
    for folder in ("/dev/shm", "/tmp", "/var/tmp", host["open_folder"]):
        try:
            os.close(os.open(f"{folder}/coharness-left-{host['token']}", os.O_CREAT | os.O_WRONLY))
        except OSError:
            continue
        return f"left a file in {folder}"
    return ""
"""
_HOST_PROC = """
def attack(host):
    hit = []
    for name in ("cmdline", "environ", "maps", "mem"):
        try:
            with open(f"/proc/{host['pid']}/{name}", "rb") as file:
                if file.read(1) or name == "mem":
                    hit.append(name)
        except OSError:
            continue
    return " ".join(hit)
"""
_HOST_FILES = """
def attack(host):
    try:
        with open(host["secret"]) as file:
            return file.read()
    except OSError:
        return ""
"""
_HOST_ENVIRONMENT = """
import os
def attack(host):
    allowed = {"LANG", "HOME", "PATH", "PWD", "LD_LIBRARY_PATH", "LC_CTYPE", "SHLVL", "_"}
    return " ".join(sorted(set(os.environ) - allowed))
"""
_HOST_FOLDERS = """
import os
def attack(host):
    hit = []
    for folder in ("/root", "/home", "/var", "/etc/ssl", host["open_folder"]):
        try:
            hit.append(f"{folder}: {len(os.listdir(folder))}")
        except OSError:
            continue
    return " ".join(hit)
"""
_NETWORK = """
import socket
def attack(host):
    hit = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", host["port"])), (socket.AF_UNIX, "\\0" + host["abstract"])):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(0.5)
                probe.connect(address)
                hit.append(family.name)
        except OSError:
            continue
    return " ".join(hit)
"""
_LINKS = """
import os
def attack(host):
    here = f"/tmp/coharness-link-{host['token']}"
    for make in (os.symlink, os.link):
        try:
            make(host["secret"], here)
            with open(here) as file:
                return file.read()
        except OSError:
            continue
        finally:
            try:
                os.unlink(here)
            except OSError:
                pass
    try:
        with open("/tmp/../dev/../" + host["secret"]) as file:
            return file.read()
    except OSError:
        return ""
"""
_FIFO = """
import os
def attack(host):
    here = f"{host['open_folder']}/coharness-fifo-{host['token']}"
    try:
        os.mkfifo(here)
    except OSError:
        return ""
    os.unlink(here)
    return "made a fifo"
"""
_PICKLE = """
class Bomb:
    def __init__(self, path):
        self.path = path
    def __reduce__(self):
        return (open, (self.path, "w"))
def attack(host):
    import pickle
    return [pickle.dumps(Bomb(host["touch"])), Bomb(host["touch"])]
"""
_PICKLE_BYTES = """
def attack(host):
    text = "c__builtin__\\nopen\\n(V" + host["touch"] + "\\nVw\\ntR."
    return ["", text.encode()][:1][0]
"""
_CORE = """
import os
def attack(host):
    os.abort()
"""
_MANY_FILES = """
import os
def attack(host):
    made = []
    for folder in ("/tmp", "/dev/shm", "/", ".", host["open_folder"]):
        for number in range(500):
            path = f"{folder}/coharness-many-{host['token']}-{number:0200d}"
            try:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            except OSError:
                break
            made.append(path)
    for path in made:
        os.unlink(path)
    return f"{len(made)} files" if made else ""
"""
_START_FILES = """
import os, sys
def attack(host):
    hit = []
    if not sys.flags.isolated or not sys.flags.no_site or "sitecustomize" in sys.modules:
        hit.append("the interpreter was not started bare")
    if "" in sys.path or "." in sys.path or os.getcwd() in sys.path:
        hit.append("modules are looked for in the working folder")
    if "LD_PRELOAD" in os.environ or "PYTHONPATH" in os.environ:
        hit.append("the environment steers the loader")
    for path in ("/proc/self/exe", sys.executable, os.__file__):
        try:
            with open(path, "r+b"):
                hit.append(f"may write {path}")
        except OSError:
            continue
    return "; ".join(hit)
"""
_TOUCH = "__import__('os').system('touch {touch}')"
_TOUCH_OPEN = "open('{touch}', 'w').close()"
_TOUCH_WALK = (
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0]"
    ".__init__.__globals__['system']('touch {touch}')"
)

ATTEMPTS = (
    Attempt(number=5, name="filling /tmp", goal=Goal.REACH, programs=(_FILL_TMP,)),
    Attempt(number=6, name="filling /dev/shm and memory files", goal=Goal.REACH, programs=(_FILL_SHM, _MEMFDS)),
    Attempt(
        number=7, name="leaving files or shared memory behind", goal=Goal.REACH, programs=(_LEAVE_SHARED, _LEAVE_FILE)
    ),
    Attempt(number=8, name="reading the host's /proc", goal=Goal.REACH, programs=(_HOST_PROC,)),
    Attempt(
        number=9,
        name="reading the host's files and environment",
        goal=Goal.REACH,
        programs=(_HOST_FILES, _HOST_ENVIRONMENT, _HOST_FOLDERS),
    ),
    Attempt(number=10, name="network and abstract sockets", goal=Goal.REACH, programs=(_NETWORK,)),
    Attempt(number=14, name="links, dots and fifos to the outside", goal=Goal.REACH, programs=(_LINKS, _FIFO)),
    Attempt(
        number=26, name="artefacts that act when they are loaded", goal=Goal.REACH, programs=(_PICKLE, _PICKLE_BYTES)
    ),
    Attempt(number=27, name="core dumps and many files", goal=Goal.REACH, programs=(_CORE, _MANY_FILES)),
    Attempt(number=29, name="files that run at the next start", goal=Goal.REACH, programs=(_START_FILES,)),
    Attempt(
        number=30,
        name="an answer that is evaluated",
        goal=Goal.REACH,
        programs=(_TOUCH, _TOUCH_OPEN, _TOUCH_WALK),
    ),
)
