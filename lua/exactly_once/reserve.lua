#!lua
-- Reserve the id of an item that is yet to come: a message held without a body, which `fulfil_reservation` brings (RX1). The id tells until
-- when, in ms, so that one whose time is over can be told from one that never was.
-- ARGV: now window_ms source_messages source_bytes total_messages total_bytes name nonce hold_ms
-- RETURNS: ok too-much-held
local now = clock.now()
prepared_messages.tidy(now)
local until_ms = now + tonumber(arg.hold_ms)
local id = string.format('r%d-', until_ms) .. arg.nonce
local name, record = arg.name .. id, prepared_messages.EMPTY
if not prepared_quota.has_room(name, #name + #record) then return {'too-much-held'} end
-- As old as what is dropped when this one's time is over.
prepared_messages.keep(until_ms - tonumber(arg.window_ms), name, record)
return {'ok', id, until_ms}
