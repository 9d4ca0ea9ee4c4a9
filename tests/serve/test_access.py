"""Token, host names and security headers."""

import base64

import pytest
from serve_cases import TOKEN, ask, get, has_words, post

from sigmax.serve.app import create_app
from sigmax.serve.limits import ServeOptions

BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def closed(saved):
    """Application that requires a token."""
    return create_app(saved, ServeOptions(token=TOKEN), warm_up=False)


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/static/page.js", "/predict", "/nowhere"])
def test_requests_without_the_token_are_unauthorized(closed, path):
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
        answer = get(closed, path, headers=headers)
        assert has_words(answer, 401, "token") and answer.headers["www-authenticate"] == "Bearer"


def test_health_needs_no_token_and_the_token_opens_all_paths(closed, rows):
    assert get(closed, "/health").status_code == 200
    paths = get(closed, "/openapi.json", headers=BEARER).json()["paths"]
    assert "security" not in paths["/health"]["get"]
    for path in paths.keys() - {"/health"}:
        assert paths[path]["post"]["security"] == [{"token": []}]
    assert post(closed, "/predict", {"row": rows[0]}, headers=BEARER).status_code == 200


def test_a_browser_asks_for_the_token_as_a_password(closed, rows):
    shown = get(closed, "/", headers={"accept": "text/html"})
    assert shown.status_code == 401 and shown.headers["www-authenticate"].startswith("Basic")
    for password, status in ((TOKEN, 200), ("wrong", 401)):
        sent = base64.b64encode(f"anybody:{password}".encode()).decode()
        headers = {"authorization": f"Basic {sent}"}
        assert get(closed, "/", headers=headers).status_code == status
        assert post(closed, "/predict", {"row": rows[0]}, headers=headers).status_code == status
    assert get(closed, "/", headers={"authorization": "Basic ?"}).status_code == 401


def test_the_token_is_compared_in_constant_time(closed, rows, monkeypatch):
    import hmac

    compared = []
    usual = hmac.compare_digest

    def counting(one, other):
        compared.append((one, other))
        return usual(one, other)

    monkeypatch.setattr("sigmax.serve.limits.hmac.compare_digest", counting)
    assert (
        get(closed, "/openapi.json", headers={"authorization": "Bearer é".encode()}).status_code
        == 401
    )
    assert get(closed, "/openapi.json", headers=BEARER).status_code == 200
    assert len(compared) == 2


@pytest.mark.parametrize(
    "path", ["/", "/health", "/openapi.json", "/static/page.js", "/nowhere", "/predict"]
)
def test_every_response_has_the_security_headers(app, path):
    headers = get(app, path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_other_sites_cannot_read_responses(app, rows):
    origin = {"origin": "http://evil.example"}
    answer = post(app, "/predict", {"row": rows[0]}, headers=origin)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    asked = origin | {"access-control-request-method": "POST"}
    assert ask(app, ("OPTIONS", "/predict", {"headers": asked}))[0].status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.:80"])
def test_an_unknown_host_name_is_an_error_on_a_loopback_address(app, host):
    assert has_words(get(app, "/health", headers={"host": host}), 400, "--allow-host")


def test_names_of_this_machine_and_allowed_names_are_accepted(app, saved):
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"):
        assert get(app, "/health", headers={"host": host}).status_code == 200
    other = create_app(saved, ServeOptions(allowed_hosts=("a.example",)), warm_up=False)
    assert get(other, "/health", headers={"host": "a.example:80"}).status_code == 200
    assert get(other, "/health", headers={"host": "b.example"}).status_code == 400
    everywhere = create_app(saved, ServeOptions(host="0.0.0.0"), warm_up=False)
    assert get(everywhere, "/health", headers={"host": "b.example"}).status_code == 200
