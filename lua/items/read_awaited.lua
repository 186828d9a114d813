#!lua flags=no-writes
-- Return the end of an item by its token, and up to `limit` references of dependents that do not know it yet, after one; nothing if all
-- know.
-- ARGV: now revision token after limit
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local line = redis.call('HGET', key.outcomes, awaited.MARK .. arg.token)
local found = line and {line, awaited.references(arg.token, arg.after, tonumber(arg.limit))} or {}
return respond.results(found)
