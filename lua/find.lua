#!lua flags=no-writes
-- Tell what would become of a retract of items here: `held` by who asks, or why it would be refused.
-- ARGV: now revision number | sender subids owner item token
-- RETURNS: ok stale gone deleted | held waiting item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
local results = judge.each(rows, function(_, verdict) return {verdict} end)
return {'ok', results, {}, {}, {}, 0, 0, call.partition_token}
