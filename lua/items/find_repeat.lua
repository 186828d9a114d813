#!lua flags=no-writes
-- Find out whether publishes repeat stored ones, by the rules of `publish`, and store nothing. A publish that `waits` for others is one if
-- its item is known, whatever the node does with known ids.
-- ARGV: now revision number dedupe | item once waits
-- RETURNS: ok stale gone deleted | duplicate item-not-found
local refusal = partition.load()
if refusal then return refusal end

enqueue.prepare(rows)
local results = budget.each(rows, function(row)
  if enqueue.is_duplicate(row) or row.waits ~= '' and enqueue.find(row.item) then
    return {'duplicate', row.item, dedupe.differs(row) and 1 or 0, arg.number}
  end
  return {'item-not-found'}
end)
return respond.results(results)
