#!lua flags=no-writes
-- Return the records of items that wait for parents, each named by its position or else by its id, with that position; none for others.
-- ARGV: now revision number | item position
-- RETURNS: ok stale gone deleted | ok
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local position = row.position ~= '' and row.position or items.positions_of({row.item})[1]
  local text = position and dependents.text(position)
  if not text then return {'ok'} end
  call.budget_spent = call.budget_spent + #text / budget.PAGE
  return {'ok', arg.number, position, text}
end)
return respond.results(results)
