-- Makes a delivery that is sent again, or that goes on to its next stage. The token stays; the sequence is new, and another
-- frontend sends it.
local redelivery = {NOTHING = {by = '', body = '', key = ''}}

-- Puts the delivery into the caller's hands and adds it to those that the caller sends; gives how large its payload is. Nothing past the
-- deadline, which gives nil: that is left to `sweep`, since a worker must not begin what another is about to get.
function redelivery.add(deliveries, flight)
  local position = flight.position
  local deadline = tonumber(redis.call('ZSCORE', key.lock_deadlines, position))
  local stage = confirmations.of(position)
  if not (deadline and deadline > call.partition_now) or partition_owner.is_fenced(flight) then return nil end
  local entry = stage == 'deliver' and redelivery.NOTHING or log_entries.get(flight.log_id)
  if not entry then return nil end
  if stage == 'assured' then deadline = call.partition_deadline end
  inflight.hand_to(position, flight.line, arg.frontend, string.format('%d', partition.next_number()))
  delivery_row.add(deliveries, flight.jid, position, flight.item, tonumber(flight.token), tonumber(flight.attempt), deadline, entry.by,
    entry.body, call.partition_token, stage, entry.key, pools.whose(pools.of(flight.subid), flight.subid))
  return #entry.body
end
