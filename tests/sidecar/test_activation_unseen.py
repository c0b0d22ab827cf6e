"""A socket that systemd passes and whose directory the sidecar's user may not look into."""

from __future__ import annotations

import os
import socket

import pytest

from lilo_sidecar.intake.activation import PassedListener, PassedSocket
from support.containers import activated_as, needs_root, volume
from support.producer import Producer
from support.sidecar import running
from support.unreachable import place_of_a_user

SIDECAR = 4242


@needs_root
def test_directory_that_only_systemd_may_look_into_is_no_trouble() -> None:
    """The sidecar serves whoever is let in, for as long as they come, and has nothing to say of a
    socket that it cannot see."""
    with volume(0o755) as place, socket.socket(socket.AF_UNIX) as listener:
        closed, state = place / "closed", place / "state"
        for made in (closed, state):
            made.mkdir(mode=0o700)
        os.chown(state, SIDECAR, SIDECAR)
        path = closed / "timing.sock"
        listener.bind(str(path))
        listener.listen(8)
        process = activated_as(
            SIDECAR, listener, "serve", "--state-dir", state, "--http", "127.0.0.1:0"
        )
        with running(process) as sidecar:
            for boot in ("first", "second", "third"):  # after each the file is looked for
                with Producer(path, boot) as producer:
                    producer.greet()
                    assert producer.work() == 1
            assert sidecar.stop() == 0
        assert sidecar.log.rest() == []


def test_file_that_cannot_be_seen_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Whether it is there or not; once it can be seen that it is gone, that is told."""
    with place_of_a_user() as place, socket.socket(socket.AF_UNIX) as listener:
        closed = place / "closed"
        closed.mkdir()
        path = closed / "timing.sock"
        listener.bind(str(path))
        listener.listen(8)
        passed = PassedListener(PassedSocket(os.dup(listener.fileno()), path))
        closed.chmod(0)
        passed.restore()
        closed.chmod(0o700)
        path.unlink()
        closed.chmod(0)
        passed.restore()
        assert caplog.messages == []
        closed.chmod(0o700)
        passed.restore()
        assert [str(path) in message for message in caplog.messages] == [True]
        passed.close()
