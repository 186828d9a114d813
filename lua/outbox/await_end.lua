#!lua
-- Say what became of items that others wait for; with `register` note who waits (`reference`). With a `token` only that item counts, not a
-- later one of its id. An item whose own publish is not finished is `unfinished`, so nobody waits in a circle.
-- ARGV: now revision number | item reference token register
-- RETURNS: ok stale gone deleted | awaited(partition token) ended(partition outcome) unfinished(partition) unknown
local refusal = partition.load()
if refusal then return refusal end

-- Returns the position of the present item with an id.
local function present(item)
  local position = items.positions_of({item})[1]
  local flight = position and inflight.get_many({position})[1]
  if flight then return flight.item == item and position end
  return position and items.waiting(position, item) and position
end

local results = budget.each(rows, function(row)
  budget.spend(1)
  local known = call.partition_before.awaited and awaited.find(row.reference)
  if known then return {'awaited', arg.number, known} end
  local position = present(row.item)
  if position and (row.token == '' or awaited.token(position) == row.token) then
    if dependents.is_begun(position) then return {'unfinished', arg.number} end
    if row.register == '1' then awaited.add(position, row.reference) end
    return {'awaited', arg.number, awaited.token(position)}
  end
  local line = call.partition_before.replies and outcomes.get(row.item)
  if line then return {'ended', arg.number, line} end
  return {'unknown'}
end)
partition.save()
return respond.results(results)
