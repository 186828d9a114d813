"""What tests of XMPP servers share: an authority that everybody trusts, and servers as the pages configure them."""

import ssl
from collections.abc import Iterator

import pytest

from tests.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """Give an authority that clients in this process trust."""
    made = Authority(tmp_path_factory.mktemp("federation") / "authority")
    with pytest.MonkeyPatch.context() as patch:

        def trust(context: ssl.SSLContext) -> None:
            context.load_verify_locations(made.certificate)

        patch.setattr(ssl.SSLContext, "set_default_verify_paths", trust)
        yield made
