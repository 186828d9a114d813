#!lua flags=no-writes
-- Tell what would become of a retract of items here: `held` by who asks, `replayed` when the request was answered here before,
-- or why it would be refused.
-- ARGV: now revision number | sender subids owner item token request
-- RETURNS: ok stale gone deleted | held waiting replayed item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
local results = ack_rules.each(rows, function(_, verdict) return {verdict} end)
return {'ok', results, {}, {}, {}, 0, 0, call.partition_token}
