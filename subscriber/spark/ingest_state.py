"""What an ingestion job must find again to go on where it stopped: one folder."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .disk import Disk
from .errors import IngestError

_NAME = "job.json"


@dataclass(frozen=True)
class IngestState:
    """The folder of one job, whose parts belong together: Spark's checkpoint numbers the batches,
    the spool has the rows of those under way, and `job_id` makes the numbers unique for ever.

    A job that lost its state begins anew, with another id: what was not acknowledged comes again,
    and nothing that an earlier one wrote is overwritten.
    """

    folder: Path
    job_id: str

    @property
    def checkpoint(self) -> str:
        # With its scheme: the default of a cluster's Spark may be another file system.
        return (self.folder / "checkpoint").as_uri()

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def batch(self, number: int) -> str:
        """The name of one of the job's batches, unlike that of any other job's."""
        return f"{self.job_id}-{number}"

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, str]) -> IngestState:
        """The state in `folder`, which is made if there is none.

        Raises:
            IngestError: it is of a job with another identity, or cannot be read or made.
        """
        folder = folder.absolute()
        path = folder / _NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                content = {"id": uuid.uuid4().hex[:12], **identity}
                Disk().write(path, json.dumps(content, indent=2).encode())
            found = json.loads(path.read_text(encoding="utf-8"))
            job_id = found["id"]
        except (OSError, ValueError, KeyError) as error:
            raise IngestError(
                f"the state in {folder} cannot be used: {error!r}; choose another folder"
            ) from error
        for name, value in identity.items():
            if found.get(name) != value:
                raise IngestError(
                    f"the state in {folder} is that of a job whose {name} is {found.get(name)!r}, "
                    f"not {value!r}; each job needs a folder of its own"
                )
        return cls(folder, job_id)
