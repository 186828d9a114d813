-- Deliveries in a reply: all values in one flat list. A list for each delivery would cost Redis more than all its values.
local delivery_row = {}

-- Preallocates room for one delivery.
function delivery_row.list()
  return {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end

-- Returns the last value of a delivery: whose subscription it is for, as `references.whose` names it, and, where one of these is not usual, since
-- when the item is ready, in ms (0: since its publish), whether somebody wants to know its end, and how many attempts did not count.
function delivery_row.about(whose, after, reply, untried)
  if after == 0 and not reply and untried == 0 then return whose end
  return string.format('%s %d %s %d', whose ~= '' and whose or ' ', after, reply and 1 or '', untried)
end

-- `attempt` is the number of tries including this one. `stage` may be followed by the most items that share a stanza. `whose` is as
-- `about` returns it.
function delivery_row.add(list, jid, position, item, token, attempt, deadline, by, body, sequence, stage, group, whose)
  local last = #list
  list[last + 1] = jid
  list[last + 2] = position
  list[last + 3] = item
  list[last + 4] = token
  list[last + 5] = attempt
  list[last + 6] = deadline
  list[last + 7] = by
  list[last + 8] = body
  list[last + 9] = sequence
  list[last + 10] = stage
  list[last + 11] = group
  list[last + 12] = whose
end
