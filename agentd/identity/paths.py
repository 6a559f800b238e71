"""Where agents ask each other about certificates."""

CA_PATH = "/mesh/v1/ca"
RENEW_PATH, REVOCATIONS_PATH = "/mesh/v1/certificate", "/mesh/v1/revocations"
AUTHORITIES_PATH = "/mesh/v1/authorities"
TOKENS_PATH, REVOKE_PATH = "/mesh/v1/join-tokens", "/mesh/v1/revoke"
