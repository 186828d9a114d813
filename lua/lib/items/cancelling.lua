-- Ends items that nobody has acknowledged.
local cancelling = {}

-- An item that nobody holds.
function cancelling.drop(position, item, entry)
  items.drop(position, entry)
  group_order.remove(position)
  outcomes.note_end(position, item, 'cancelled', '', '')
end

-- An item that is held, with a later version of it: the holder is told.
function cancelling.end_lock(flight)
  lock_end.cancel(flight)
  notices.tell({'cancelled', flight.jid, flight.item, tonumber(flight.token), references.describe(flight)})
end
