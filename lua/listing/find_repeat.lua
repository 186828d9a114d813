#!lua flags=no-writes
-- Find out whether publishes repeat stored ones, by the rules of `publish`, while Redis has no memory to run that.
-- ARGV: now revision number dedupe | item once hints
-- RETURNS: ok stale gone deleted | duplicate(item [differs dependent{partition [position parents]}]) out-of-memory
local refusal = partition.load()
if refusal then return refusal end

enqueue.prepare(rows)
local results = budget.each(rows, function(row) return enqueue.answer_repeat(row) or {'out-of-memory'} end)
return respond.results(results)
