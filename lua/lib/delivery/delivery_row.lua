-- Deliveries in a reply: all values in one flat list. A list for each delivery would cost Redis more than all its values.
local delivery_row = {}

-- Preallocates room for one delivery.
function delivery_row.list()
  return {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
end

-- `stage` may be followed by the most items that share a stanza. `whose` names the subscription, as `pools.whose` does; a third word is
-- since when the item is ready, in ms, if it was not at its publish.
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
