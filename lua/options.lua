#!lua flags=no-writes
-- Read what subscriptions were granted: credit and quality of service.
-- KEYS: meta subscribers shares
-- ARGV: now revision number | subid
-- RETURNS: ok stale gone deleted | ok not-subscribed
-- WRITES:
--- @include partition subscriptions shares
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subscriber = subscriptions.get(row.subid)
  results[i] = subscriber and {'ok', shares.read(subscriber).total, subscriber.qos} or {'not-subscribed'}
end
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
