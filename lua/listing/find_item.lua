#!lua flags=no-writes
-- Return what a retract of items would do here: `held` if the sender holds the item, `replayed` if the request was answered here before,
-- else why it would be refused.
-- ARGV: now revision number | sender subids owner item token request
-- RETURNS: ok stale gone deleted | held waiting replayed item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
local results = ack_rules.each(rows, function(_, verdict) return {verdict} end)
return respond.results(results)
