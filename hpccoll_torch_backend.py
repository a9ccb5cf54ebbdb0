# SPDX-License-Identifier: Apache-2.0
"""What `import torch` loads of hpccoll (an entry point of the group torch.backends): the name of the backend.

A program then says init_process_group("hpccoll") and imports nothing else. This module is outside of the package,
because importing the package loads its C extension. Programs that do not use hpccoll must not wait for that, nor fail
where the extension cannot be loaded. PyTorch knows the group since 2.5; TORCH_DEVICE_BACKEND_AUTOLOAD=0 switches it
off. Without it programs import hpccoll.torch.
"""

import importlib
import sys
import warnings

__all__ = ["register"]

NAME = "hpccoll"


class _ImportsOnFirstUse:
    """The attribute Backend.HPCCOLL, which torch reads when a program names the backend."""

    def __get__(self, instance: object, owner: type) -> str:
        delattr(owner, NAME.upper())  # hpccoll.torch registers the backend under this name
        try:
            importlib.import_module("hpccoll.torch")
        except BaseException:
            setattr(owner, NAME.upper(), self)
            raise
        return NAME


def register() -> None:
    """Let torch import hpccoll.torch when a program first names the backend.

    torch calls this in `import torch`, which ends with an error if this does. So it warns instead.
    """
    try:
        add_name()
    except Exception as error:  # noqa: BLE001 - of whatever torch has changed
        text = f"hpccoll could not give torch its name, so `import hpccoll.torch` before it is used: {error!r}"
        try:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        except RuntimeWarning:  # under -W error
            print(text, file=sys.stderr)


def add_name() -> None:
    """Add the name to those that torch knows."""
    distributed = importlib.import_module("torch.distributed")
    backends = getattr(distributed, "Backend", None)
    if backends is None or NAME.upper() in vars(backends):
        return  # a torch without torch.distributed; or hpccoll.torch was faster
    backends.backend_list.append(NAME)
    setattr(backends, NAME.upper(), _ImportsOnFirstUse())
