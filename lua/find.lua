#!lua flags=no-writes
-- Tell what would become of a retract of items here: `held` by who asks, or why it would be refused.
-- KEYS: meta log index replaced parked ready delayed inflight history handover answers answers_old keyed selectors passed ranked ends
-- ARGV: now revision number | sender subids owner item token
-- RETURNS: ok stale gone deleted | held waiting item-not-found forbidden locked-by-another lock-lost
-- WRITES:
--- @include judge
local refusal = partition.load()
if refusal then return refusal end
local results = judge.each(rows, function(_, verdict) return {verdict} end)
return {'ok', results, {}, {}, {}, 0, 0, partition.token}
