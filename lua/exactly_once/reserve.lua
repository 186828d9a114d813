#!lua
-- Reserve the id of a later item: a prepared message without a body, which `fulfil_reservation` adds (RX1). The id contains its expiry in
-- ms, so that an expired reservation can be told from an unknown one.
-- ARGV: now window_ms source_messages source_bytes total_messages total_bytes name nonce hold_ms
-- RETURNS: ok(item until_ms) too-much-held
local now = clock.now()
prepared_messages.tidy(now)
local until_ms = now + tonumber(arg.hold_ms)
local id = string.format('r%d-', until_ms) .. arg.nonce
local name, record = arg.name .. id, prepared_messages.EMPTY
if not prepared_quota.has_room(name, #name + #record) then return {'too-much-held'} end
-- Dated so that the window ends with the reservation.
prepared_messages.keep(until_ms - tonumber(arg.window_ms), name, record)
return {'ok', id, until_ms}
