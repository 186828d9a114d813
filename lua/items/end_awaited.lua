#!lua flags=allow-oom
-- Remove dependents that know the end of an item or are gone, and that end when all know it.
-- ARGV: now revision token | reference
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local references = {}
for i, row in ipairs(rows) do references[i] = row.reference end
awaited.remove(arg.token, references)
return respond.results({})
