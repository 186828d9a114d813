#!lua flags=no-writes
-- Read the credit that subscriptions were granted.
-- KEYS: meta subscribers
-- ARGV: now revision | subid
-- RETURNS: ok stale gone deleted | ok not-subscribed
-- WRITES:
--- @include partition subscriptions
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local subscriber = subscriptions.get(row.subid)
  results[i] = subscriber and {'ok', subscriber.limit} or {'not-subscribed'}
end
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
