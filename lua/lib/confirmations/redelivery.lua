-- Sends a delivery again, or its next stage. The token stays; the sequence is new, and the caller sends it.
local redelivery = {}

-- Assigns the delivery to the caller and adds it to the caller's deliveries; returns the size of its payload. Returns nil past the
-- deadline: `sweep` handles that, since a worker must not begin an item that another is about to get.
function redelivery.add(deliveries, flight)
  local position = flight.position
  local deadline = tonumber(redis.call('ZSCORE', key.lock_deadlines, position))
  local stage, _, message = confirmations.of(position)
  if not (deadline and deadline > call.partition_now) or partition_owner.is_fenced(flight) then return nil end
  -- The receiver has the item already: it gets the name of the message that it may start with.
  local entry = stage == 'deliver' and {by = '', body = message, key = ''} or log_entries.get(flight.log_id)
  if not entry then return nil end
  if stage == 'assured' then deadline = call.partition_deadline end
  inflight.hand_to(position, flight.line, arg.frontend, string.format('%d', partition.next_number()))
  local attempt = tonumber(flight.attempt)
  local tries = attempt_history.count(position, attempt)
  delivery_row.add(deliveries, flight.jid, position, flight.item, tonumber(flight.token), tries, deadline, entry.by, entry.body,
    call.partition_token, stage, entry.key, delivery_row.about(references.whose(references.of(flight), flight.subid), 0,
    outcomes.are_wanted(position), attempt - tries))
  return #entry.body
end
