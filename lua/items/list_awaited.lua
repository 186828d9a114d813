#!lua flags=allow-oom
-- Return up to `limit` of those that wait for items of the partition, each a reference, a zero byte and a token, after one, to check whether
-- they still wait. An empty page ends the check.
-- ARGV: now revision after limit
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
return respond.results(awaited.page(arg.after, tonumber(arg.limit)), next_due.time())
