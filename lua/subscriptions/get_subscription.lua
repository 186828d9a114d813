#!lua flags=no-writes
-- Read the granted options of subscriptions: credit, quality of service, expiry, and, of one to a collection, the scope.
-- ARGV: now revision | subid named
-- RETURNS: ok stale gone deleted | ok(credit sending until_ms subid [scope selector]) not-subscribed subid-required subid-invalid
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subid, refused = subscription_ids.choose(row.subid, row.named)
  results[i] = refused
  if subid then
    local subscriber = subscriptions.get(subid)
    local scope, line = redis.call('HGET', key.scopes, subid) or '', selectors.line(subid)
    results[i] = {'ok', subscriber.limit, subscriptions.sending(subscriber), subscription_expiry.of(subid), subid,
      (scope ~= '' or line) and scope or nil, line}
  end
end
return respond.results(results)
