-- A delivery that is sent again, or goes on to its next stage: same token, a new sequence, another frontend to send it.
local again = {NOTHING = {by = '', body = '', key = ''}}

-- Puts the delivery into the caller's hands and gives the row that says what to send. Nothing past the deadline: that is
-- left to `sweep`, since a worker must not begin what another is about to get.
function again.row(flight)
  local position = flight.position
  local deadline = tonumber(redis.call('ZSCORE', key.deadlines, position))
  local stage = unconfirmed.of(position)
  if not (deadline and deadline > call.partition_now) or owner.fenced(flight) then return nil end
  local entry = stage == 'deliver' and again.NOTHING or entries.get(flight.log_id)
  if not entry then return nil end
  if stage == 'assured' then deadline = call.partition_deadline end
  flights.entrust(position, flight.line, arg.frontend, string.format('%d', partition.next_number()))
  return {flight.jid, position, flight.item, tonumber(flight.token), tonumber(flight.attempt), deadline, entry.by,
    entry.body, call.partition_token, stage, entry.key, pools.told(flight.subid)}
end
