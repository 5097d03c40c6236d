// Does what users of node-vault do, and fails when something is not as it is
// with Vault. Arguments: the address, a credential's two parts, the credential.
import assert from "node:assert/strict";
import vault from "node-vault";

const [endpoint, role_id, secret_id, whole] = process.argv.slice(2);
const refused = (statusCode) => (err) => err.response?.statusCode === statusCode;

for (const how of ["login", "credential"]) {
  const c = vault({ endpoint, namespace: how === "login" ? "acme" : undefined });
  c.token = undefined;
  if (how === "login") {
    const { auth } = await c.approleLogin({ role_id, secret_id });
    assert.equal(auth.token_type, "service");
    assert.ok(auth.lease_duration >= 3590 && auth.lease_duration <= 3600, auth.lease_duration);
    assert.equal(c.token, auth.client_token); // node-vault takes it from the answer
  } else {
    c.token = whole;
  }
  const { data } = await c.read("secret/data/llm/openai");
  assert.equal(data.data.key, "sk-second");
  assert.equal(data.metadata.version, 2);
  assert.deepEqual(data.metadata.custom_metadata, { region: "eu" });
  for (const noCustomHTTPVerbs of [false, true]) {
    c.noCustomHTTPVerbs = noCustomHTTPVerbs;
    assert.deepEqual((await c.list("secret/metadata/llm")).data.keys, ["openai", "team/"]);
  }
  assert.equal((await c.read("secret/metadata/llm/openai")).data.current_version, 2);
  await assert.rejects(c.read("secret/data/llm/nobody"), refused(404));
  await assert.rejects(c.read("secret/data/off"), refused(404));
  assert.equal((await c.health()).sealed, false);
  assert.equal((await c.status()).sealed, false);
  assert.equal((await c.tokenLookupSelf()).data.renewable, how === "login");
}

const rival = vault({ endpoint, namespace: "rival" });
await assert.rejects(rival.approleLogin({ role_id, secret_id }), refused(403));
const c = vault({ endpoint });
await assert.rejects(c.approleLogin({ role_id, secret_id: "a".repeat(52) }), refused(403));
await c.approleLogin({ role_id, secret_id });
assert.ok((await c.tokenRenewSelf({ increment: "2h" })).auth.lease_duration <= 3600);
await c.tokenRevokeSelf();
await assert.rejects(c.read("secret/data/llm/openai"), refused(403));
console.log("all is as with Vault");
