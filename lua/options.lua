#!lua flags=no-writes
-- Read what subscriptions were granted: credit, quality of service, until when, and of a collection their scope.
-- KEYS: meta subscribers shares leases selectors
-- ARGV: now revision number | subid
-- RETURNS: ok stale gone deleted | ok not-subscribed
-- WRITES:
--- @include partition subscriptions shares leases selectors
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subscriber = subscriptions.get(row.subid)
  results[i] = {'not-subscribed'}
  if subscriber then
    local share, said = shares.read(subscriber), selectors.said(row.subid)
    results[i] = {'ok', share.total, subscriber.qos, leases.of(row.subid),
      (share.scope ~= '' or said) and share.scope or nil, said}
  end
end
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
