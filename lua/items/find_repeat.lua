#!lua flags=no-writes
-- Find out whether publishes repeat stored ones, by the rules of `publish`, while Redis has no memory to run that.
-- ARGV: now revision number dedupe | item once hints
-- RETURNS: ok stale gone deleted | duplicate out-of-memory
local refusal = partition.load()
if refusal then return refusal end

enqueue.prepare(rows)
local results = budget.each(rows, function(row)
  if row.hints ~= '' then scheduling.read_request(row) end
  if enqueue.is_duplicate(row) or row.parents and enqueue.find(row.item) then
    return {'duplicate', row.item, dedupe.differs(row) and 1 or row.parents and 0, row.parents and arg.number}
  end
  return {'out-of-memory'}
end)
return respond.results(results)
