"""Files of the host's: read, by every way there is to one; the data folder and block devices,
too."""

import ctypes
import os
import struct
import subprocess
from pathlib import Path

from kit import WORLD, attempt, syscall


@attempt
def read_shadow():
    return Path("/etc/shadow").read_text()[:20]


@attempt
def read_machine_id():
    return Path("/etc/machine-id").read_text()[:20]


@attempt
def list_root_home():
    return str(os.listdir("/root"))


@attempt
def read_ssh_keys():
    return str(os.listdir("/root/.ssh"))


@attempt
def list_host_home():
    return str(os.listdir(WORLD["home"]))


@attempt
def read_host_canary():
    return Path(WORLD["canary_file"]).read_text()


@attempt
def read_canary_through_proc_1_root():
    return Path(f"/proc/1/root{WORLD['canary_file']}").read_text()


@attempt
def read_canary_through_proc_self_root():
    return Path(f"/proc/self/root{WORLD['canary_file']}").read_text()


@attempt
def read_canary_through_every_proc_root():
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        for link in ("root", "cwd"):
            for climb in ("", "/../../../../../.."):
                try:
                    return Path(f"/proc/{pid}/{link}{climb}{WORLD['canary_file']}").read_text()
                except OSError:
                    continue
    return None


@attempt
def read_canary_through_descriptors():
    for pid in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                return Path(f"/proc/{pid}/fd/{name}/../..{WORLD['canary_file']}").read_text()
            except OSError:
                continue
    return None


@attempt
def inherited_descriptor():
    extra = [
        n
        for n in os.listdir("/proc/self/fd")
        if int(n) > 2
        and not os.readlink(f"/proc/self/fd/{n}").endswith("/fd")
        and os.path.exists(f"/proc/self/fd/{n}")
    ]
    return str(extra) if extra else None


@attempt
def read_data_directory():
    return Path(WORLD["data_secret_inside"]).read_text()


@attempt
def list_data_directory():
    return (
        str(os.listdir(os.path.dirname(WORLD["data_secret_inside"])))
        if os.listdir(os.path.dirname(WORLD["data_secret_inside"]))
        else None
    )


@attempt
def uncover_data_directory():
    syscall("umount2", os.path.dirname(WORLD["data_secret_inside"]).encode(), 2)
    return "unmounted"


@attempt
def climb_out_by_dot_dot():
    return Path("/workspace/merged/" + "../" * 20 + WORLD["canary_file"].lstrip("/")).read_text()


@attempt
def climb_out_by_symlink():
    link = Path("/workspace/merged/link-out")
    link.unlink(missing_ok=True)
    link.symlink_to(WORLD["canary_file"])
    try:
        return link.read_text()
    finally:
        link.unlink()


@attempt
def open_by_handle():
    # The Docker "shocker": file handles are good for a whole file system.
    handle = ctypes.create_string_buffer(struct.pack("IiQ", 8, 1, 2) + b"\0" * 120)
    descriptor = os.open("/workspace/merged", os.O_RDONLY)
    return f"fd {syscall('open_by_handle_at', descriptor, handle, 0)}"


@attempt
def read_block_device():
    for name in (
        "/dev/vda",
        "/dev/sda",
        "/dev/nvme0n1",
        "/dev/mem",
        "/dev/kmem",
        "/dev/port",
        "/dev/kmsg",
    ):
        try:
            return f"{name}: {os.open(name, os.O_RDONLY)}"
        except OSError:
            continue
    return None


@attempt
def make_block_device():
    for folder in ("/tmp", "/workspace/merged", "/dev"):
        try:
            os.mknod(f"{folder}/disk", 0o600 | 0o060000, os.makedev(254, 0))
            return folder
        except OSError:
            continue
    return None


@attempt
def run_loader_on_a_host_file():
    loader = next(Path("/lib64").glob("ld-linux*"), None) or next(Path("/lib").glob("ld-linux*"))
    done = subprocess.run(
        [loader, "/bin/cat", WORLD["canary_file"]], capture_output=True, text=True, check=False
    )
    return done.stdout or None


@attempt
def run_copied_binary_on_a_host_file():
    Path("/tmp/cat").write_bytes(Path("/bin/cat").read_bytes())
    os.chmod("/tmp/cat", 0o755)
    return (
        subprocess.run(
            ["/tmp/cat", WORLD["canary_file"]], capture_output=True, text=True, check=False
        ).stdout
        or None
    )


@attempt
def run_from_memory_on_a_host_file():
    descriptor = os.memfd_create("x")
    os.write(descriptor, Path("/bin/cat").read_bytes())
    argv = [f"/proc/self/fd/{descriptor}", WORLD["canary_file"]]
    return (
        subprocess.run(
            argv, capture_output=True, text=True, check=False, pass_fds=[descriptor]
        ).stdout
        or None
    )
